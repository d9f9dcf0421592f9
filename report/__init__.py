"""What a compiled network looks like: one page of HTML, and a trace for Perfetto."""
