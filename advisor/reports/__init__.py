"""Reports: each renders a finished `Diagnosis` and uses nothing else.

Open ``diagnosis_blocks`` first: a diagnosis as a tree of ``blocks``, which ``text``, ``markdown`` and
``html`` write. ``summary`` is the short form, ``finding_text`` one finding, ``phrases`` what several
formats say alike. ``sarif``, ``tool_formats``, ``json_report`` and ``workbook`` are the other formats.
"""
