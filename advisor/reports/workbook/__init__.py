"""The review workbook.

Open ``book`` first: it lists the sheets. ``sheet`` declares columns and writes rows, ``style`` is the look;
``findings_sheet``, ``evidence``, ``table_sheets`` and ``review_sheet`` are the sheets of a diagnosis,
``experiments`` those of comparisons. ``review_sheet`` reads answers back.
"""
