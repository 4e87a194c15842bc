import { randomBytes } from 'node:crypto'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { jsonLogger } from '../../../../../src/base/log.ts'
import {
  InstanceServiceDefinition,
  MigrateInstanceRequest,
  State,
} from '../../../../../src/gen/microvm/instance/v1/instance.ts'
import { startCollector } from '../../../../support/host/otlp-collector.ts'
import { daemonClient } from '../../../../support/host-wing/running-daemon.ts'
import { listeningPorts } from '../../../../support/processes.ts'
import { leftovers } from '../../../../support/wing/leftovers.ts'
import { MovingHosts } from '../../../../support/wing/moves/moving-hosts.ts'
import { image } from '../../../../support/wing/real-wing.ts'
import { ADMIN, file } from '../../../../support/wing/requests.ts'

const TIMEOUT_MS = 120_000

describe('a machine that moves between two hosts', { timeout: TIMEOUT_MS }, () => {
  let hosts: MovingHosts
  const warnings: string[] = []

  beforeEach(() => {
    warnings.length = 0
    const sink = (line: string) => void warnings.push(line)
    hosts = new MovingHosts(['a', 'b'], jsonLogger({ level: () => 'warn', version: '', pid: 0, sink }))
  })

  afterEach(async () => {
    await hosts.end()
    expect(warnings).toEqual([])
    for (const id of ['a', 'b']) expect(leftovers(hosts.host(id).machines.folder)).toEqual([])
  })

  /** What a caller is told who is attached to the console: where the machine has gone, and how far its bytes had come. */
  async function attachedTo(id: string, offset = 0n) {
    let position = offset
    const { instances } = await hosts.open(id)
    for await (const answer of instances.attach({ key: 'web', port: 0, offset }, ADMIN)) {
      expect(answer.offset).toBe(position)
      position += BigInt(answer.data.length)
      if (answer.moved !== undefined) return { moved: answer.moved, position }
    }
    return { moved: undefined, position }
  }

  it('goes on with its memory and its console where it stopped, there and back', async () => {
    const made = await hosts.make('a')
    const ready = Promise.withResolvers<void>()
    hosts.host('b').atStep = async (_, step) => {
      if (step === 'repair') await ready.promise
    }
    const moving = hosts.move('a', 'b')
    // Before the guest is ready there.
    const told = await attachedTo('a')
    ready.resolve()
    const answers = await moving
    expect(new Set(answers.map(({ step }) => step))).toEqual(
      new Set(['target', 'negotiate', 'handover', 'disks', 'memory', 'state', 'continue', 'switchover', '']),
    )
    const memoryBytes = 64n * 2n ** 20n
    expect(answers.findLast(({ step }) => step === 'memory')).toMatchObject({
      ...{ doneBytes: memoryBytes, totalBytes: memoryBytes },
    })
    expect(answers.at(-1)?.operation?.steps.map(({ name }) => name)).toContain('switchover')
    const { endpoint } = hosts.controller.hosts.get('b') ?? {}
    expect(answers.at(-1)?.moved).toMatchObject({ host: 'b', endpoint, operation: { kind: 'arrival' } })
    const [a, b] = [await hosts.open('a'), await hosts.open('b')]
    expect(a.instances.list(ADMIN)).toEqual([])
    await expect(a.instances.get('web', ADMIN)).rejects.toMatchObject({
      ...{ code: 'NOT_FOUND', reason: 'moved' },
      message: `instance web: not found: its machine runs on host b at ${endpoint}`,
    })
    const { moved, position } = told
    expect(moved).toMatchObject({ host: 'b', endpoint })
    expect((await attachedTo('a', position)).moved).toMatchObject({ host: 'b', endpoint })
    const there = await b.instances.get('web', ADMIN)
    expect(there).toMatchObject({
      state: State.RUNNING,
      bootId: made.bootId,
      specification: made.specification,
    })
    await hosts.host('b').machines.counted('web', 50)
    const first = await hosts.host('b').machines.told()
    expect(first.first).toBe(0n)
    expect(first.end).toBeGreaterThan(position)

    await hosts.move('b', 'a')
    await hosts.host('a').machines.counted('web', 50)
    const back = await hosts.host('a').machines.told()
    expect(back.end).toBeGreaterThan(first.end)
    expect(hosts.controller.chain.map((each) => each.split('/')[0])).toEqual(['a', 'b', 'a'])
  })

  it('tells a collector of its steps on both hosts in one trace, which its caller began', async () => {
    const collector = await startCollector()
    hosts.otlpEndpoint = collector.endpoint
    await hosts.make('a')
    await hosts.open('b')
    const client = daemonClient((await hosts.open('a')).socket)
    const { fullName, methods } = InstanceServiceDefinition
    const traceparent = `00-${'4'.repeat(32)}-${'5'.repeat(16)}-01`
    const { call, ended } = client.open(`${fullName}/${methods.migrateInstance.name}`, {
      metadata: { traceparent },
    })
    const request = MigrateInstanceRequest.fromPartial({ key: 'web', toHost: 'b' })
    call.end(MigrateInstanceRequest.encode(request).finish())
    await ended
    client.close()
    const spans = await collector.until(({ name }) => name === 'move')
    await collector.until(({ name }) => name === 'arrival')
    collector.stop()
    const named = (wanted: string) => spans.find(({ name }) => name === wanted)
    expect(new Set(spans.map(({ traceId }) => traceId))).toEqual(new Set(['4'.repeat(32)]))
    const [move, arrival] = [named('move'), named('arrival')]
    expect(move).toMatchObject({ host: 'a', parentSpanId: '5'.repeat(16), status: { code: 0 } })
    expect(arrival).toMatchObject({ host: 'b', parentSpanId: named('handover')?.spanId, status: { code: 0 } })
    const below = (parent: string | undefined) =>
      spans.filter(({ parentSpanId }) => parentSpanId === parent).map(({ host, name }) => `${host} ${name}`)
    expect(below(move?.spanId)).toEqual(
      [
        'target',
        'negotiate',
        'handover',
        'disks',
        'memory',
        'state',
        'handed',
        'continue',
        'switchover',
        'end',
      ].map((name) => `a ${name}`),
    )
    expect(below(arrival?.spanId)).toContain('b switchover')
  })

  it('takes the disk along where another file takes its place, and sets its own file aside', async () => {
    await hosts.make('a')
    const [from, to] = [join(hosts.disks, 'images', 'root'), join(hosts.disks, 'images', 'other')]
    const content = randomBytes(16 * 2 ** 20)
    writeFileSync(from, content)
    const small = image(join(hosts.disks, 'images'), 'other', 15)
    hosts.replaced = { 'root-file': file(small) }
    await expect(hosts.move('a', 'b')).rejects.toThrow(/disk root-file: has \d+ bytes, want 16777216/)
    await hosts.host('a').machines.counted('web', 10)
    image(join(hosts.disks, 'images'), 'other', 16)
    const bytes = 16n * 2n ** 20n
    const dry = async () => (await hosts.move('a', 'b', { dryRun: true })).at(-1)?.forecast
    expect(await dry()).toMatchObject({ obstacles: [], diskBytes: 0n })
    const { authoritative } = hosts.controller.vms.get('default/web') ?? {}
    const source = hosts.controller.hosts.get('a')?.endpoint ?? ''
    if (authoritative) await hosts.controller.hosts.get('b')?.ensureTarget(authoritative, source)
    const ports = listeningPorts()
    const forecast = await dry()
    expect(listeningPorts()).toEqual(ports)
    expect(forecast).toMatchObject({ obstacles: [], diskBytes: bytes })
    expect(forecast?.expectedMs).toBeGreaterThan(0n)
    const answers = await hosts.move('a', 'b')
    expect(answers.findLast(({ step }) => step === 'disks')).toMatchObject({
      ...{ doneBytes: bytes, totalBytes: bytes },
    })
    expect(hosts.controller.vms.get('default/web')?.volumes).toMatchObject([
      { key: 'root-file', host: 'b', path: to },
    ])
    const there = await (await hosts.open('b')).instances.get('web', ADMIN)
    expect(there.specification?.backends['root-file']?.file?.path).toBe(to)
    await hosts.host('b').machines.counted('web', 10)
    expect(readFileSync(to).equals(content)).toBe(true)
    const names = readdirSync(join(hosts.disks, 'images'))
    expect(names).not.toContain('root')
    expect(names.filter((name) => /^root\.stale-\d+$/.test(name))).toHaveLength(1)
  })
})
