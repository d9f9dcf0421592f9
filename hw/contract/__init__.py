"""The contract: what a machine is and means. Imports nothing else of ours; everyone may import it. No Amaranth."""
