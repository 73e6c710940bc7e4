"""The commands of a program, one class each (Kaldi's enum CommandType, nnet-computation.h)."""

from nnet3tools.program.command import COMMANDS, Command
from nnet3tools.program.component_commands import Backprop, BackpropNoModelUpdate, Propagate
from nnet3tools.program.control_commands import (
    AcceptInput,
    AllocMatrix,
    CompressionType,
    CompressMatrix,
    DeallocMatrix,
    DecompressMatrix,
    GotoLabel,
    NoOperation,
    NoOperationLabel,
    NoOperationMarker,
    NoOperationPermanent,
    ProvideOutput,
    SetConst,
    SwapMatrix,
)
from nnet3tools.program.matrix_commands import (
    AddRowRanges,
    AddRows,
    CopyRows,
    MatrixAdd,
    MatrixCopy,
    RowsCommand,
    has_row,
)
from nnet3tools.program.multi_commands import (
    AddRowsMulti,
    AddToRowsMulti,
    CopyRowsMulti,
    CopyToRowsMulti,
    MultiCommand,
)
from nnet3tools.program.operands import Access, AccessType
