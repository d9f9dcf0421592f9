"""How pages and traces begin, by which a later command knows them again: light, for those who only ask."""

from __future__ import annotations

from weft.support.outputs import Kind

PAGE = Kind.of_head("a page of weft report", r'<!DOCTYPE html>\n<html lang="en">\n.*<title>[^<]* on weft</title>')
NOTE = {"time": "1 us stands for 1 cycle"}
TRACE = Kind.of_head("a trace of operations", r'\{"otherData": \{"time": "1 us stands for 1 cycle"')
"""A trace begins with NOTE, for ``traceEvents`` alone stand in the traces of other programs too."""
