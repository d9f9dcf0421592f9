// SPDX-License-Identifier: Apache-2.0
// The simulator's main loop: cocotb on Verilator, with the clock made here.
//
// A clock from cocotb costs Python time at every edge, one from SystemVerilog a coroutine resumption; here it is a
// store. The top module's input WEFT_CLOCK toggles every WEFT_HALF_PERIOD time steps. Callbacks on the clock run
// before the design sees the edge, and what they write is applied after it, so that a coroutine which awaits an edge
// samples what a flip-flop would sample.
//
// $fatal ends the simulation in an orderly way (cocotb reports the test as failed, the exit code is 1).

#include <algorithm>
#include <cstring>
#include <memory>

#include "Vtop.h"
#include "verilated.h"
#include "verilated_vpi.h"

#if VM_TRACE
#if VM_TRACE_FST
#include "verilated_fst_c.h"
using Trace = VerilatedFstC;
#else
#include "verilated_vcd_c.h"
using Trace = VerilatedVcdC;
#endif
#endif

extern "C" void vlog_startup_routines_bootstrap(void);

namespace {

uint64_t now = 0;

void value_callbacks() {
    while (VerilatedVpi::callValueCbs()) {
    }
}

// Everything that happens at one moment: design and cocotb take turns until neither has anything left to do.
void settle(Vtop& top) {
    do {
        do {
            top.eval_step();
            VerilatedVpi::clearEvalNeeded();
            VerilatedVpi::doInertialPuts();
            value_callbacks();
        } while (VerilatedVpi::evalNeeded());
        if (VerilatedVpi::callCbs(cbReadWriteSynch)) {
            VerilatedVpi::doInertialPuts();
            value_callbacks();
        }
    } while (VerilatedVpi::evalNeeded());
    top.eval_end_step();
    VerilatedVpi::callCbs(cbReadOnlySynch);
}

}  // namespace

double sc_time_stamp() { return now; }

int main(int argc, char** argv) {
    Verilated::commandArgs(argc, argv);
    Verilated::fatalOnVpiError(false);
    Verilated::fatalOnError(false);
    auto top = std::make_unique<Vtop>("");

#if VM_TRACE
    std::unique_ptr<Trace> trace;
    if (Verilated::commandArgsPlusMatch("weft_trace")[0]) {
        Verilated::traceEverOn(true);
        trace = std::make_unique<Trace>();
        top->trace(trace.get(), 99);
        trace->open(VM_TRACE_FST ? "dump.fst" : "dump.vcd");
    }
#endif

    vlog_startup_routines_bootstrap();
    VerilatedVpi::callCbs(cbStartOfSimulation);
    value_callbacks();

    uint64_t next_edge = WEFT_HALF_PERIOD;
    top->WEFT_CLOCK = 0;

    while (!Verilated::gotFinish()) {
        settle(*top);
#if VM_TRACE
        if (trace) trace->dump(now);
#endif
        uint64_t next = std::min<uint64_t>(next_edge, VerilatedVpi::cbNextDeadline());
        if (top->eventsPending()) next = std::min<uint64_t>(next, top->nextTimeSlot());
        now = next;
        const bool due = VerilatedVpi::cbNextDeadline() <= now;  // asked first: any call of callbacks takes it off
        if (VerilatedVpi::callCbs(cbNextSimTime)) value_callbacks();
        if (due) {
            VerilatedVpi::callTimedCbs();
            value_callbacks();
        }
        if (now == next_edge) {
            next_edge += WEFT_HALF_PERIOD;
            top->WEFT_CLOCK = !top->WEFT_CLOCK;
            value_callbacks();
        }
    }

    top->final();
    VerilatedVpi::callCbs(cbEndOfSimulation);
#if VM_TRACE
    if (trace) trace->close();
#endif
#if VM_COVERAGE
    VerilatedCov::write();
#endif
    return Verilated::threadContextp()->gotError() ? 1 : 0;
}
