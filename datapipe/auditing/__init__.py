"""Could the evaluation have been in the data?  From what a scan found to a report that defends a score."""
