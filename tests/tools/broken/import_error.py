from json import nothing
