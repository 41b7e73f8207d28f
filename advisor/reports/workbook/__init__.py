"""The review workbook."""
