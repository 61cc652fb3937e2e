"""The files of a page of the guide in a folder: guide_files.py PAGE FOLDER"""
import pathlib
import re
import sys

page, folder = map(pathlib.Path, sys.argv[1:])
for name, body in re.findall(r"^```\w+ (\S+/\S+)\n((?:.*\n)*?)```$", page.read_text(), re.MULTILINE):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(body)
