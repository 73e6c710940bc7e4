"""Readers and writers of Kaldi's tables: (key, object) pairs in archives and script files."""

from nnet3tools.io.table_random import MappedTableReader, RandomAccessTableReader
from nnet3tools.io.table_reader import SequentialTableReader
from nnet3tools.io.table_writer import TableWriter
