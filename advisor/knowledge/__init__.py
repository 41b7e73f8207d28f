"""Expert knowledge: the files of `knowledge/`, validated.

Open ``files`` first: one function a file. ``shapes`` says what may stand in them, ``verb_files`` the same
for files that single verbs read, ``facts`` for those of ``knowledge/facts/``. ``kernel_names`` takes kernel
names apart, ``gpus`` knows rates and features of boards, ``engine_signs`` finds the serving engine. What is
known is data; edit ``knowledge/*.yaml``.
"""
