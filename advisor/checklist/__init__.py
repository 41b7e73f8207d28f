"""The checklist of a performance analysis: questions, what facts answer, a resumable session.

Open ``items`` first: it joins the questions of ``knowledge/checklist.yaml`` with the rules of
``rules/checklist`` that answer them. ``session`` keeps the answers of people in a file. What is asked is
data; edit it there.
"""
