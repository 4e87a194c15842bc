import { buffer } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { StreamChanged } from '../../../src/gen/microvm/agent/v1/introspection.ts'
import type { Pod } from '../../support/containers/pod.ts'
import { listenForMany } from '../../support/host/host-ports.ts'
import { ResumingReader, ResumingWriter } from '../../support/host/resuming-host.ts'
import { CRUN, cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { bootPod } from '../../support/vm/guest-pod.ts'
import { HOT_VSOCK, HotVsock } from '../../support/vm/hot-plug/hot-vsock.ts'

const LINES = 60_000
const ALL = Array.from({ length: LINES }, (_, line) => `${line + 1}\n`).join('')
const OUTPUTS = [7001, 7002, 7003, 7004]
const INPUT = 7005
const TERMINAL = 7006

describe.skipIf(cannotBoot() !== undefined)('a guest with agent.stream_grace whose vsock device goes', () => {
  let guest: TestGuest
  let pod: Pod
  let vsock: HotVsock
  beforeAll(async () => {
    ;({ guest, pod } = await bootPod({ ...HOT_VSOCK, append: [CRUN, 'agent.stream_grace=60'] }))
    vsock = new HotVsock(guest)
    await pod.run('host', ['sleep', '1000'])
  })
  afterAll(async () => {
    await guest?.stop()
    await vsock?.end()
  })

  const changes = async (): Promise<readonly StreamChanged[]> => {
    const told: StreamChanged[] = []
    for (let afterSequence = 0n; ; ) {
      const answer = await guest.introspection.getEvents({ afterSequence, timeoutMs: 0, limit: 0 })
      if (answer.events.length === 0) return told
      for (const { streamChanged } of answer.events) if (streamChanged !== undefined) told.push(streamChanged)
      afterSequence = answer.lastSequence
    }
  }
  const totalOf = async (port: number, stream: string) => {
    const told = (await changes()).find((one) => one.port === port && one.stream === stream)
    return Number(told?.total)
  }
  const listen = (port: number) => listenForMany(`${vsock.path}_${port}`)

  it('goes on with each stream at its port, with exactly the told bytes lost', {
    timeout: 180_000,
  }, async () => {
    const before = await Promise.all([...OUTPUTS, INPUT, TERMINAL].map(listen))
    const outputs = []
    for (const port of OUTPUTS) {
      outputs.push(await pod.add('host', `out-${port}`, ['seq', `${LINES}`], { ports: { stdoutPort: port } }))
    }
    const input = await pod.add('host', 'in', ['cat'], { ports: { stdinPort: INPUT } })
    const terminal = await pod.add('host', 'tty', ['sh', '-c', 'read line; echo "got $line"'], {
      terminal: true,
      ports: { stdinPort: TERMINAL, stdoutPort: TERMINAL },
    })
    // The outputs are not read, so that bytes are on their way when the device goes.
    const connections = await Promise.all(before.map((port) => port.next()))
    connections[4]?.write(ALL.slice(0, 100_000))
    const got = [await input.read()]
    const reading = input.readAll()
    await vsock.unplug()
    await expect.poll(async () => (await changes()).length, { timeout: 20_000 }).toBe(OUTPUTS.length + 3)
    expect(await totalOf(TERMINAL, 'stdin')).toBe(0)
    for (const each of before) each.close()

    await vsock.plug()
    const after = await Promise.all([...OUTPUTS, INPUT, TERMINAL].map(listen))
    const next = await Promise.all(after.map((port) => port.next()))
    const texts = await Promise.all(
      next.slice(0, OUTPUTS.length).map(async (socket) => (await buffer(socket)).toString()),
    )
    for (const [index, port] of OUTPUTS.entries()) {
      const total = await totalOf(port, 'stdout')
      expect(total).toBeGreaterThan(0)
      expect(texts[index] === ALL.slice(total)).toBe(true)
    }
    expect(await Promise.all(outputs.map((each) => each.wait()))).toEqual(OUTPUTS.map(() => 0))
    next[4]?.end('the rest')
    const taken = await totalOf(INPUT, 'stdin')
    expect(Buffer.concat([...got, await reading]).toString() === `${ALL.slice(0, taken)}the rest`).toBe(true)
    next[5]?.write('typed\r')
    expect((await buffer(next[5] ?? expect.fail())).toString()).toContain('got typed')
    expect(await terminal.wait()).toBe(0)
  })
})

describe.skipIf(cannotBoot() !== undefined)(
  'a guest with agent.stream_resume whose vsock device goes',
  () => {
    let guest: TestGuest
    let pod: Pod
    let vsock: HotVsock
    beforeAll(async () => {
      const append = [CRUN, 'agent.stream_grace=60', 'agent.stream_resume=true']
      ;({ guest, pod } = await bootPod({ ...HOT_VSOCK, append }))
      vsock = new HotVsock(guest)
      await pod.run('host', ['sleep', '1000'])
    })
    afterAll(async () => {
      await guest?.stop()
      await vsock?.end()
    })

    it('loses and repeats no byte of outputs and inputs, three times', { timeout: 180_000 }, async () => {
      const listen = (port: number) => listenForMany(`${vsock.path}_${port}`)
      const sent = Buffer.from(ALL)
      const reader = { numbers: new ResumingReader(), copy: new ResumingReader() }
      const writer = new ResumingWriter(sent)
      let listening = await Promise.all([7101, 7102, 7103].map(listen))
      const numbers = await pod.add('host', 'numbers', ['seq', `${LINES}`], { ports: { stdoutPort: 7101 } })
      const copy = await pod.add('host', 'copy', ['cat'], { ports: { stdinPort: 7102, stdoutPort: 7103 } })
      for (let round = 1; ; round++) {
        const [first, second, third] = await Promise.all(listening.map((port) => port.next()))
        if (first === undefined || second === undefined || third === undefined)
          throw new Error('no connection')
        const isLast = round === 4
        const most = isLast ? Number.POSITIVE_INFINITY : round * 60_000
        const all = [
          reader.numbers.read(first, most),
          writer.write(second, isLast ? most : 60_000),
          reader.copy.read(third, isLast ? most : round * 50_000),
        ]
        await Promise.all(all)
        if (isLast) break
        // More is on its way in both directions.
        second.write(sent.subarray(writer.acknowledged, writer.acknowledged + 30_000))
        await vsock.unplug()
        for (const port of listening) port.close()
        await vsock.plug()
        listening = await Promise.all([7101, 7102, 7103].map(listen))
      }
      expect(reader.numbers.bytes.equals(sent)).toBe(true)
      expect(reader.copy.bytes.equals(sent)).toBe(true)
      expect([await numbers.wait(), await copy.wait()]).toEqual([0, 0])
      expect(new Set(writer.openings.map(({ name }) => name)).size).toBe(1)
    })
  },
)
