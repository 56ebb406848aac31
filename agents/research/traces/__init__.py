"""Profiles of an engine, read as data: torch-profiler Chrome JSON and rocprofv3 kernel traces -> one TraceSummary.

stream (bytes to JSON values, in bounded memory) -> chrome, rocprof (events into a Timeline) -> steps (which GPU work
belongs to which step) -> summary (where the time goes) -> profiles (what a dossier takes from it). `read.py` is the
way in.
"""
