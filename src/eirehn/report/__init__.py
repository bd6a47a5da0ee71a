"""Tables, figures and the HTML report, made from plain data and independent of training."""
