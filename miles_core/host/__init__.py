"""The plugin host: scan what is installed, decide what is enabled, load it guarded, keep a registry and a lock."""
