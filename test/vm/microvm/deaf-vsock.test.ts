import { readdirSync, readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectOnce } from '../../../src/client/connection/connect-agent.ts'
import { agentOf } from '../../../src/client/container/container-session.ts'
import { connectMachine } from '../../../src/client/daemon/connect-machine.ts'
import { lastingSession } from '../../../src/client/lasting-session.ts'
import { HealthDefinition } from '../../../src/gen/health.ts'
import { ChangeStateRequest_Change as Change } from '../../../src/gen/microvm/instance/v1/instance.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import { processes } from '../../support/processes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { cannotBoot } from '../../support/vm/boot-guest.ts'
import { bootInDaemon, type DaemonGuest } from '../../support/vm/daemon-guest.ts'
import { createPod } from '../../support/vm/guest-pod.ts'

/** Prints numbers until it is told to end. */
const COUNT = 'i=0; until [ -e /tmp/over ]; do i=$((i + 1)); echo $i; done'

describe.skipIf(cannotBoot() !== undefined).each(['pc-q35-7.2', 'pc-i440fx-7.2'] as const)(
  'a guest of %s whose vsock daemon has lost its worker',
  { timeout: 120_000 },
  (machine) => {
    const over = new AbortController()
    let guest: DaemonGuest
    beforeAll(async () => {
      guest = await bootInDaemon({ folder: temporaryFolder(), machine })
    }, 150_000)
    afterAll(async () => {
      over.abort()
      await guest?.close()
    })

    const changeState = (change: Change) => guest.client.instances.changeState({ key: 'web', change })

    async function vsockDaemon(): Promise<number> {
      const { holderPid } = await guest.client.instances.getInstance({ key: 'web' })
      const own = processes().find(({ name, parent }) => parent === holderPid && name === 'vhost-device-vs')
      return own?.pid ?? expect.fail('no vsock daemon')
    }

    it('gets another one, and what it prints meanwhile arrives once', async () => {
      const session = lastingSession(guest.connection, {
        dial: (each) => {
          const connect = (limit: AbortSignal) =>
            connectMachine(`${guest.folder}/state/admin.sock`, 'web', limit)
          return connectOnce({ connect }, each)
        },
        ...{ returnMs: 60_000, onLoss: () => {}, signal: over.signal },
      })
      const pod = await createPod(agentOf(session), guest.rootSource)
      const counter = await pod.run('counter', ['sh', '-c', COUNT])
      const before = await counter.readUntil('\n1000\n')
      // A read is open whenever the device goes.
      const rest = counter.readAll()
      rest.catch(() => {})
      const deaf = await vsockDaemon()
      expect(threadsOf(deaf)).toContain('vring_worker')
      await changeState(Change.PAUSE)
      const health = clientFor(HealthDefinition, session)
      await expect(health.check({}, { timeoutMs: 300 })).rejects.toThrow('timeout')
      expect(threadsOf(deaf)).not.toContain('vring_worker')
      await changeState(Change.RUN)
      await (await pod.add('counter', 'end', ['touch', '/tmp/over'])).wait()
      expect(await vsockDaemon()).not.toBe(deaf)
      const numbers = (before + (await rest)).trimEnd().split('\n')
      expect(numbers).toEqual(numbers.map((_, index) => `${index + 1}`))
      expect(await counter.wait()).toBe(0)
      session.close()
    })
  },
)

function threadsOf(pid: number): readonly string[] {
  const names = readdirSync(`/proc/${pid}/task`).map((each) =>
    readFileSync(`/proc/${pid}/task/${each}/comm`, 'utf8'),
  )
  return names.map((name) => name.trimEnd())
}
