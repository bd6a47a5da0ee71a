"""The sections of the page, each a function of the report and its palette that returns HTML."""
