"""The checklist of a performance analysis: questions, what facts answer, a resumable session."""
