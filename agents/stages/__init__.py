"""The nodes of a night. Each is a function (night, progress) -> progress, safe to run twice."""
