import { buffer } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { LifecycleDefinition } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import { clientFor, type ServiceClient } from '../../../src/rpc/client.ts'
import type { Pod } from '../../support/containers/pod.ts'
import { listenForMany } from '../../support/host/host-ports.ts'
import { ResumingReader } from '../../support/host/resuming-host.ts'
import { CRUN, cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { bootPod, GUEST_PROC } from '../../support/vm/guest-pod.ts'
import { HOT_VSOCK, HotVsock } from '../../support/vm/hot-plug/hot-vsock.ts'

const LINES = 60_000
/** What seq writes. */
const BYTES = 348_894
const [PORT, NEXT] = [7001, 7002]

/** Without agent.stream_grace. test/host/stdio/detach.test.ts compares the bytes. */
describe.skipIf(cannotBoot() !== undefined)('a guest whose streams are detached', () => {
  let guest: TestGuest
  let pod: Pod
  let vsock: HotVsock
  let lifecycle: ServiceClient<typeof LifecycleDefinition>
  beforeAll(async () => {
    ;({ guest, pod } = await bootPod({ ...HOT_VSOCK, append: [CRUN] }))
    vsock = new HotVsock(guest)
    lifecycle = clientFor(LifecycleDefinition, guest.guest.connection)
    await pod.run('host', ['sleep', '1000'])
  })
  afterAll(async () => {
    await guest?.stop()
    await vsock?.end()
  })

  it('tells what has passed, and connects them again when another device comes', {
    timeout: 120_000,
  }, async () => {
    const listen = (port: number) => listenForMany(`${vsock.path}_${port}`)
    const [before, other] = [await listen(PORT), await listen(NEXT)]
    const output = await pod.add('host', 'out', ['seq', `${LINES}`], { ports: { stdoutPort: PORT } })
    await pod.add('host', 'still', ['sh', '-c', 'read line; echo "$line"'], {
      ports: { stdinPort: NEXT },
    })
    const [first, second] = [await before.next(), await other.next()]
    const waiting = guest.agent.waitProcess({ containerId: 'host', execId: '' })
    const ended = expect(waiting).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    const reading = buffer(first)
    const { streams } = await lifecycle.detach({ timeoutMs: 120_000 })
    const got = await reading
    await ended
    const told = streams.find(({ port }) => port === PORT)
    expect(told).toMatchObject({ containerId: 'host', execId: 'out', stream: 'stdout' })
    expect(Number(told?.total)).toBe(got.length)
    await expect(pod.add('host', 'late', ['true'])).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    second.destroy()
    for (const each of [before, other]) each.close()

    await vsock.unplug()
    const repair = () => lifecycle.getResume({}).catch(() => undefined)
    await expect.poll(async () => (await repair())?.state, { timeout: 20_000 }).toBe('ready')
    expect(await repair()).toMatchObject({ trigger: 'device', randomness: 'unknown' })
    await expect(pod.add('host', 'late', ['true'])).rejects.toMatchObject({ code: 'UNAVAILABLE' })

    await vsock.plug()
    const attached = async () => {
      const { events } = await guest.introspection.getEvents({})
      return events.flatMap(({ streamChanged }) =>
        streamChanged?.action === 'attached' ? streamChanged.port : [],
      )
    }
    const [again, otherAgain] = [await listen(PORT), await listen(NEXT)]
    await expect.poll(attached, { timeout: 20_000 }).toEqual(expect.arrayContaining([PORT, NEXT]))
    const rest = await buffer(await again.next())
    expect(got.length + rest.length).toBe(BYTES)
    expect(await output.wait()).toBe(0)
    for (const each of [again, otherAgain]) each.close()
  })
})

/** More than the connections bring that are lost. */
const NUMBERS = 1_500_000
const DEVICES = 100

describe.skipIf(cannotBoot() !== undefined)('a guest whose vsock device comes and goes 100 times', () => {
  let guest: TestGuest
  let pod: Pod
  let vsock: HotVsock
  beforeAll(async () => {
    const append = [CRUN, 'agent.stream_grace=600', 'agent.stream_resume=true']
    ;({ guest, pod } = await bootPod({ ...HOT_VSOCK, append }))
    vsock = new HotVsock(guest)
    await pod.run('host', ['sleep', '1000'])
  })
  afterAll(async () => {
    await guest?.stop()
    await vsock?.end()
  })

  /** Of all processes of the guest. */
  async function descriptors(): Promise<number> {
    const capabilities = ['CAP_SYS_PTRACE', 'CAP_DAC_READ_SEARCH']
    const options = { mounts: [GUEST_PROC], capabilities }
    return Number(await pod.output('descriptors', 'ls /guest/proc/[0-9]*/fd | wc -w', options))
  }

  it('goes on with its stream at each, and keeps no descriptor', { timeout: 300_000 }, async () => {
    const before = await descriptors()
    let port = await listenForMany(`${vsock.path}_${PORT}`)
    const output = await pod.add('host', 'numbers', ['seq', `${NUMBERS}`], { ports: { stdoutPort: PORT } })
    const reader = new ResumingReader()
    for (let device = 1; device <= DEVICES; device++) {
      await reader.read(await port.next(), reader.total + 1)
      port.close()
      port = await listenForMany(`${vsock.nextPath}_${PORT}`)
      await vsock.unplug()
      await vsock.plug()
    }
    await reader.read(await port.next())
    port.close()
    const numbers = Array.from({ length: NUMBERS }, (_, index) => `${index + 1}\n`).join('')
    const got = reader.bytes.toString()
    let at = 0
    while (at < numbers.length && got[at] === numbers[at]) at++
    expect(got.slice(at, at + 60), `byte ${at}`).toBe(numbers.slice(at, at + 60))
    expect(got).toHaveLength(numbers.length)
    expect(await output.wait()).toBe(0)
    expect(new Set(reader.openings.map(({ name }) => name)).size).toBe(1)
    expect(reader.openings).toHaveLength(DEVICES + 1)
    expect((await guest.introspection.getSandbox({})).agentRestarts).toBe(0)
    expect(await descriptors()).toBeLessThan(before + DEVICES / 4)
  })
})
