"""Tables, figures and the HTML report: functions of plain data, which know nothing of training."""
