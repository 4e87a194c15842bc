import { execFileSync } from 'node:child_process'
import { closeSync, mkdirSync, openSync, readdirSync, readlinkSync, writeFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { neverAborted } from '../../src/base/abort.ts'
import { buildHolder } from '../../src/build/native.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import type { HolderClient } from '../../src/host/instance/holder/holder-client.ts'
import { startHolder } from '../../src/host/instance/holder/start-holder.ts'
import { type BulkTls, NAMES } from '../../src/host/migration/bulk/bulk.ts'
import { openIncoming } from '../../src/host/migration/bulk/incoming.ts'
import { openOutgoing } from '../../src/host/migration/bulk/outgoing.ts'
import { bulkSettings } from '../../src/host/migration/bulk/settings.ts'
import {
  acceptOne,
  give,
  giveConnection,
  giveListener,
  loadAddon,
} from '../../src/host/migration/bulk/sockets.ts'
import { addTls } from '../../src/host/migration/bulk/tls.ts'
import { type BulkMachine, startBulkMachine } from '../../test/support/wing/moves/bulk-machines.ts'
import { median, report } from '../support/figure.ts'

/**
 * The move of a memory of 512 MiB, 384 of which are used, and of a disk of 256 MiB; and the same commands of QEMU by hand. An emulated
 * guest stands still for all of its memory, which QEMU by hand sends wrongly (seesWrites of src/host/migration/bulk/outgoing.ts).
 */
const PLAN = { memoryMib: 512, diskMib: 256 } as const
const USED_MIB = 384
const ROUNDS = 3

interface Times {
  readonly wholeMs: number
  readonly stoppedMs: number
}

const folder = makeTemporaryFolder('/tmp')
const program = await buildHolder()
const native = await loadAddon()
const started: HolderClient[] = []
let count = 0
const holders = {
  newFolder: () => {
    const own = join(folder, String(count++))
    mkdirSync(own, { mode: 0o700 })
    return own
  },
  start: async (own = '') => {
    const holder = await startHolder(own, program)
    started.push(holder)
    return holder
  },
}

function certificates(): void {
  const run = (...words: readonly string[]) =>
    execFileSync('openssl', words, { cwd: folder, stdio: 'ignore' })
  const key = ['-nodes', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256']
  run(
    'req',
    '-x509',
    ...key,
    '-subj',
    '/CN=ca',
    '-keyout',
    'ca.key',
    '-out',
    'ca.pem',
    '-addext',
    'keyUsage=keyCertSign',
  )
  for (const id of ['a', 'b']) {
    run('req', '-new', ...key, '-subj', `/CN=${id}`, '-keyout', `${id}.key`, '-out', `${id}.csr`)
    const uses = [
      'keyUsage=digitalSignature',
      `subjectAltName=DNS:${id}`,
      'extendedKeyUsage=serverAuth,clientAuth',
    ]
    writeFileSync(join(folder, 'extensions'), uses.join('\n'))
    const by = ['-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-extfile', 'extensions']
    run('x509', '-req', '-in', `${id}.csr`, ...by, '-out', `${id}.pem`)
  }
}

function tlsOf(id: string, peer: string): BulkTls {
  const at = (name: string) => join(folder, name)
  return { identity: { ca: at('ca.pem'), cert: at(`${id}.pem`), key: at(`${id}.key`) }, peer }
}

/** The machines of one round. The source's memory has content that QEMU has to send. */
async function pair(): Promise<readonly [BulkMachine, BulkMachine]> {
  const source = await startBulkMachine(holders, PLAN)
  const target = await startBulkMachine(holders, { ...PLAN, isIncoming: true })
  const fds = `/proc/${source.pid}/fd`
  const memory = readdirSync(fds).find((fd) =>
    readlinkSync(join(fds, fd)).startsWith('/memfd:memory-backend'),
  )
  const file = openSync(join(fds, memory ?? ''), 'r+')
  for (let mib = 64; mib < 64 + USED_MIB; mib++)
    writeSync(file, Buffer.alloc(2 ** 20, mib), 0, 2 ** 20, mib * 2 ** 20)
  closeSync(file)
  return [source, target]
}

async function downtimeOf({ qmp }: BulkMachine): Promise<number> {
  return (await qmp.execute('query-migrate', {}, neverAborted)).downtime ?? 0
}

async function own(): Promise<Times> {
  const [source, target] = await pair()
  const begun = performance.now()
  const listen = { host: '127.0.0.1', tls: tlsOf('b', 'a') }
  const incoming = await openIncoming(target, { disks: [target.disk], listen })
  const outgoing = await openOutgoing(source, {
    ...{ disks: [source.disk], endpoints: incoming, tls: tlsOf('a', 'b'), settings: bulkSettings() },
    ...{ wasRunning: true, signal: neverAborted },
  })
  await outgoing.copyDisks()
  const stoppedAt = await outgoing.sendMemory()
  await outgoing.endDisks()
  await outgoing.endMemory()
  await incoming.arrived
  await incoming.endDisks()
  await target.qmp.execute('cont', {}, neverAborted)
  const ended = performance.now()
  outgoing.finish()
  return { wholeMs: ended - begun, stoppedMs: ended - stoppedAt }
}

/** No more than what QEMU's manual has for it. */
async function byHand(hasTls: boolean): Promise<Times> {
  const [source, target] = await pair()
  const begun = performance.now()
  const at = { host: '127.0.0.1' }
  const tls = { 'tls-creds': NAMES.credentials }
  const [client, server] = hasTls ? [{ ...tls, 'tls-hostname': 'b' }, tls] : [{}, {}]
  if (hasTls) {
    await addTls(target, 'server', { ...tlsOf('b', 'a'), native })
    await addTls(source, 'client', { ...tlsOf('a', 'b'), native })
  }
  const disks = await giveListener(target, at, { fdname: 'disks', native })
  const addr = { type: 'fd', data: { str: 'disks' } } as const
  const [one, other] = [source.qmp, target.qmp]
  await other.execute('nbd-server-start', { addr, ...server, 'max-connections': 1 }, neverAborted)
  const { node } = target.disk
  const exported = { type: 'nbd', id: 'e', name: 'e', 'node-name': node, writable: true } as const
  await other.execute('block-export-add', exported, neverAborted)
  const wire = await giveConnection(source, disks, { fdname: 'disk', native })
  const remote = {
    driver: 'nbd',
    'node-name': 'r',
    server: { type: 'fd', str: 'disk' },
    export: 'e',
    ...client,
  }
  await one.execute('blockdev-add', remote, neverAborted)
  const mirror = { 'job-id': 'm', device: node, target: 'r', sync: 'full', 'auto-dismiss': true }
  await one.command({ execute: 'blockdev-mirror', arguments: mirror }, neverAborted)
  while ((await one.execute('query-block-jobs', {}, neverAborted))[0]?.status !== 'ready') await delay(10)
  const acceptor = await acceptOne(at, () => true)
  const memory = await giveConnection(source, acceptor.endpoint, { fdname: 'memory', native })
  await give(target, await acceptor.first, { fdname: 'memory', native })
  acceptor.close()
  const capabilities = ['events', 'pause-before-switchover'].map((capability) => ({
    capability,
    state: true,
  }))
  const limits = { 'max-bandwidth': 2 ** 40, 'downtime-limit': 100 }
  await other.execute('migrate-set-capabilities', { capabilities: capabilities.slice(0, 1) }, neverAborted)
  await other.execute('migrate-set-parameters', server, neverAborted)
  await one.execute('migrate-set-capabilities', { capabilities }, neverAborted)
  await one.execute('migrate-set-parameters', { ...limits, ...client }, neverAborted)
  const state = (qmp: typeof one, wanted: string) =>
    qmp.event(({ data }) => data.status === wanted, neverAborted)
  const [paused, sent, arrived] = [
    state(one, 'pre-switchover'),
    state(one, 'completed'),
    state(other, 'completed'),
  ]
  await other.execute('migrate-incoming', { uri: 'fd:memory' }, neverAborted)
  await one.execute('migrate', { uri: 'fd:memory' }, neverAborted)
  await paused
  await one.execute('block-job-cancel', { device: 'm' }, neverAborted)
  while ((await one.execute('query-block-jobs', {}, neverAborted)).length > 0) await delay(1)
  await one.execute('migrate-continue', { state: 'pre-switchover' }, neverAborted)
  await sent
  await arrived
  await other.execute('nbd-server-stop', {}, neverAborted)
  await other.execute('cont', {}, neverAborted)
  const wholeMs = performance.now() - begun
  for (const each of [wire, memory]) each.close()
  return { wholeMs, stoppedMs: await downtimeOf(source) }
}

async function measured(move: () => Promise<Times>): Promise<Times> {
  const times = await move()
  for (const holder of started.splice(0)) await holder.end()
  return times
}

try {
  certificates()
  const all: Record<'own' | 'tls' | 'plain', Times[]> = { own: [], tls: [], plain: [] }
  for (let round = 0; round < ROUNDS; round++) {
    all.plain.push(await measured(() => byHand(false)))
    all.tls.push(await measured(() => byHand(true)))
    all.own.push(await measured(own))
  }
  const middle = (name: keyof typeof all, field: keyof Times) =>
    median(all[name].map((times) => times[field]))
  const figures = [
    { field: 'wholeMs', figure: 'disk and memory moved', limit: 1.3 },
    { field: 'stoppedMs', figure: 'guest stopped for a move', limit: 2.5 },
  ] as const
  for (const { field, figure, limit } of figures)
    for (const floor of ['tls', 'plain'] as const) {
      const by = floor === 'tls' ? 'by hand with TLS' : 'by hand without TLS'
      const value = middle('own', field)
      report({ figure: `${figure}, and ${by}`, unit: 'ms', value, floor: middle(floor, field), limit })
    }
} finally {
  for (const holder of started) await holder.end()
  removeTemporaryFolder(folder)
}
