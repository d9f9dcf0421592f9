"""Reports of a compiled network: one page of HTML, and a trace for Perfetto."""
