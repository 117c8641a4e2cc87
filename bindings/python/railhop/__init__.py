"""Railhop: a transfer engine for KV caches. The engine itself is railhop.engine."""
