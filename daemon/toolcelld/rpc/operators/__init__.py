"""What operators ask of the daemon, a module for each thing: the parts of their service.

`activity` and `history` say what runs and what has happened, `doctor` what the host lacks. `steering` changes what runs,
`trust_request` what is trusted, `preparation` what is installed and `server_update` which version of a server there is.
"""
