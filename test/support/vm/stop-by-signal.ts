import { expect } from 'vitest'
import type { Pod } from '../containers/pod.ts'
import type { TestGuest } from './boot-guest.ts'
import { ROOT } from './guest-pod.ts'

/**
 * Sends a signal to the guest's PID 1 while a container runs. Expects that the agent removes the container, then that the
 * guest powers itself off; the last test in its guest. Ctrl-Alt-Del reaches PID 1 as SIGINT (man 2 reboot).
 */
export async function expectStopBySignal(signal: 'TERM' | 'INT', guest: TestGuest, pod: Pod): Promise<void> {
  const init = await pod.run('running', ['sh', '-c', 'trap "" TERM; echo ready; sleep 1000'])
  await init.readUntil('ready')
  const waiting = init.wait()
  // A hook runs outside the container, where PID 1 is the guest's.
  const hook = { Path: `${ROOT}/bin/busybox`, Args: ['kill', `-${signal}`, '1'] }
  await pod.create('caller', ['true'], { spec: { Hooks: { CreateRuntime: [hook] } } }).catch(() => {})
  expect(await waiting).toBe(137)
  expect(await guest.guest.vm.exited).toEqual({ code: 0, signal: undefined })
  const { lines } = guest.guest.vm.console
  const said = (text: string) => lines.findIndex((line) => line.includes(text))
  const order = [said('"asked by vminit"'), said('"stopped"'), said('reboot: Power down')]
  expect(order, lines.join('\n')).not.toContain(-1)
  expect(order.toSorted((a, b) => a - b)).toEqual(order)
}
