"""The figures of the page, one section of it a file. Small, so that they can be read on a phone."""
