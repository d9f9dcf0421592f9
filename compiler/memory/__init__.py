"""The memory manager: it places Vars in the DRAMs and pins some in local memory."""
