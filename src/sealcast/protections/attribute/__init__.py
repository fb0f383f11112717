"""The `attribute` protection: peers carry what only matching credentials open. README.md says more."""
