# SPDX-License-Identifier: Apache-2.0
"""The memory manager: it places Vars in the DRAMs and pins some in local memory."""
