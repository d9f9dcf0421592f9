# SPDX-License-Identifier: Apache-2.0
"""The beginnings of pages and traces, by which later commands recognise them. It imports little."""

from __future__ import annotations

from weft.support.outputs import Kind

PAGE = Kind.of_head("a page of weft report", r'<!DOCTYPE html>\n<html lang="en">\n.*<title>[^<]* on weft</title>')
NOTE = {"time": "1 us stands for 1 cycle"}
TRACE = Kind.of_head("a trace of operations", r'\{"otherData": \{"time": "1 us stands for 1 cycle"')
"""The kind of trace files. They begin with NOTE, because traces of other programs have ``traceEvents`` too."""
