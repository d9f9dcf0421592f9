"""Memory manager: Vars in DRAM0, residents in local memory."""
