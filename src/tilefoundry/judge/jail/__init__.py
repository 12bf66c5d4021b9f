"""The jail: a process that runs an author's program and can harm nothing beyond itself.

Three processes make one (``enter``): a supervisor with the command's rights, the first process
of a process namespace, and the child, which gives up what it can before it reads any author's
code. What the system does not allow is left out and said so in the record of protections.
"""
