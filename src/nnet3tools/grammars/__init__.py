"""Grammars (pyparsing) of the text that users write, and the one form of their errors.

A module here turns text into plain data; the room that needs it builds its own objects from that.
pyparsing takes 86 ms to be imported, so rooms import these modules inside functions.
"""
