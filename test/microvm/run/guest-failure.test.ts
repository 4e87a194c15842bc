import { describe, expect, it } from 'vitest'
import { AgentError, messageOf } from '../../../src/base/errors.ts'
import { GuestFailure, runFailure } from '../../../src/microvm/run/guest-failure.ts'

const LOST = new AgentError('UNAVAILABLE', 'ttrpc: closed')
const OUT_OF_MEMORY = 'the guest ran out of memory: it has 128 MiB; give it more with --memory'

describe('runFailure', () => {
  it.each([
    '[   11.6] Out of memory: Killed process 80 (kata-agent) total-vm:1889060kB, oom_score_adj:-997',
    '[    3.7] Kernel panic - not syncing: System is deadlocked on memory',
    '[    5.8] Initramfs unpacking failed: write error',
  ])('says that the memory ran out, also when other lines follow: %s', (line) => {
    const lines = ['vminit: boot', line, 'vminit: powering off']
    const failure = runFailure(LOST, lines, 128)
    expect(failure).toBeInstanceOf(GuestFailure)
    expect(failure).toMatchObject({ message: OUT_OF_MEMORY, consoleLines: lines })
  })

  it.each([
    [['[ 15.4] Memory cgroup out of memory: Killed process 301 (tail) total-vm:4512kB'], 'ttrpc: closed'],
    [
      ['agent: agent.log=x: unknown level', 'vminit: x'],
      'the agent did not start: agent.log=x: unknown level',
    ],
    [
      ['[    1.6] Kernel panic - not syncing: Fatal exception in interrupt', '[    1.7] Rebooting'],
      "the guest's kernel panicked: Fatal exception in interrupt",
    ],
  ])('does not take a container’s limit or another reason for it: %j', (lines, message) => {
    expect(messageOf(runFailure(LOST, lines, 128))).toBe(message)
  })

  it.each([
    ['runc create: mkdir /sys/fs/cgroup/containers/c: cannot allocate memory', `; ${OUT_OF_MEMORY}`],
    ['crun create: writing file `cgroup.subtree_control`: Cannot allocate memory', `; ${OUT_OF_MEMORY}`],
    ['runc create: container init was OOM-killed (memory limit too low?)', `; ${OUT_OF_MEMORY}`],
    ['the file nosuch was not found: no such file', ''],
  ])('leaves an answer of the agent in front, without the console: %s', (text, added) => {
    const failure = runFailure(new AgentError('INTERNAL', text), ['a line'], 128)
    expect(failure).not.toBeInstanceOf(GuestFailure)
    expect(messageOf(failure)).toBe(`${text}${added}`)
  })
})
