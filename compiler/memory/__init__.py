"""Memory manager: Vars in DRAM0, Consts in DRAM1, residents in local memory."""
