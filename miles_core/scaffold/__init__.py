"""`miles plugins new`: a plugin that installs, runs and passes its own tests at once.

`shared/` holds the files that every plugin gets, `kinds/<kind>/` what one kind adds: real packages in which the name
`xyz` stands for the plugin's. They are data here; nothing imports them.
"""
