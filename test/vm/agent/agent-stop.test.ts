import { afterEach, describe, expect, it } from 'vitest'
import type { Pod } from '../../support/containers/pod.ts'
import { cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { bootPod, ROOT } from '../../support/vm/guest-pod.ts'

describe.skipIf(cannotBoot() !== undefined)('a guest that is told to stop', () => {
  let guest: TestGuest
  let pod: Pod
  afterEach(() => guest?.stop())

  // Ctrl-Alt-Del reaches PID 1 as SIGINT (man 2 reboot).
  it.each(['TERM', 'INT'])(
    'by SIG%s to PID 1 takes its containers away and powers itself off',
    async (signal) => {
      ;({ guest, pod } = await bootPod())
      const init = await pod.run('running', ['sh', '-c', 'trap "" TERM; echo ready; sleep 1000'])
      await init.readUntil('ready')
      const waiting = init.wait()
      // A hook runs outside the container, where PID 1 is the guest's.
      const hook = { Path: `${ROOT}/bin/busybox`, Args: ['kill', `-${signal}`, '1'] }
      await pod.create('caller', ['true'], { spec: { Hooks: { CreateRuntime: [hook] } } }).catch(() => {})
      expect(await waiting).toBe(137)
      expect(await guest.guest.vm.exited).toEqual({ code: 0, signal: undefined })
      const lines = guest.guest.vm.console.lines
      const said = (text: string) => lines.findIndex((line) => line.includes(text))
      const order = [said('"asked by vminit"'), said('"stopped"'), said('reboot: Power down')]
      expect(order, lines.join('\n')).not.toContain(-1)
      expect(order.toSorted((a, b) => a - b)).toEqual(order)
    },
  )
})
