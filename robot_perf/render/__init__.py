"""Results to text, HTML, markdown, JSON and JUnit: functions that return strings or figures."""
