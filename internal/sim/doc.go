// Package sim simulates a cluster: several nodes with the queue, inbound, desk, outbound and
// webhook code of the program share a database, in one process and under virtual time, with
// faults and a schedule that follow from a seed. It has tests only; docs/simulator.md
// describes them.
package sim
