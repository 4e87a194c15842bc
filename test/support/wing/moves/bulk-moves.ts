import { execFileSync } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { expect, onTestFinished } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import type { BulkEndpoint, BulkProgress, BulkTls } from '../../../../src/host/migration/bulk/bulk.ts'
import {
  type Incoming,
  type IncomingOptions,
  openIncoming,
} from '../../../../src/host/migration/bulk/incoming.ts'
import { type Outgoing, openOutgoing } from '../../../../src/host/migration/bulk/outgoing.ts'
import { type BulkSettings, bulkSettings } from '../../../../src/host/migration/bulk/settings.ts'
import type { TestHolders } from '../../host/test-holder.ts'
import { type BulkMachine, lastNumber, socketsOf, startBulkMachine } from './bulk-machines.ts'
import { hostAuthority } from './host-certificates.ts'
import type { Authority } from './sign-certificates.ts'

/** The certificates of the hosts a, b and c, and what a host with one of them shows the host `peer`. */
export const hosts = hostAuthority('hosts', ['a', 'b', 'c'])

export function tlsOf(id: string, peer: string, { folder, ca }: Authority = hosts): BulkTls {
  return { identity: { ca, cert: join(folder, `${id}.pem`), key: join(folder, `${id}.key`) }, peer }
}

/** A target on host b for the source on host a. */
export async function startTarget(
  holders: TestHolders,
  options: Partial<IncomingOptions> & Parameters<typeof startBulkMachine>[1] = {},
): Promise<{ readonly target: BulkMachine; readonly incoming: Incoming }> {
  const target = await startBulkMachine(holders, { ...options, isIncoming: true })
  const listen = { host: '127.0.0.1', tls: tlsOf('b', 'a') }
  return { target, incoming: await openIncoming(target, { disks: [target.disk], listen, ...options }) }
}

export interface SourceOptions {
  readonly tls?: BulkTls
  readonly settings?: Partial<BulkSettings>
  readonly signal?: AbortSignal
  readonly onProgress?: (progress: BulkProgress) => void
}

export async function openSource(
  source: BulkMachine,
  endpoints: Pick<Incoming, 'disks' | 'memory'>,
  { settings, signal = neverAborted, tls = tlsOf('a', 'b'), ...others }: SourceOptions = {},
): Promise<Outgoing> {
  const disks = endpoints.disks === undefined ? [] : [source.disk]
  return await openOutgoing(source, {
    ...{ disks, endpoints, settings: bulkSettings(settings), tls, wasRunning: true, signal, ...others },
  })
}

/** What a source does, in order. */
export const SOURCE_STEPS = ['copyDisks', 'sendMemory', 'endDisks', 'endMemory'] as const

/** Throws when the source does not go on with its numbers, or has anything of a move. */
export async function checkGoesOn(source: BulkMachine): Promise<void> {
  const { qmp, folder } = source
  const ask = async (execute: string, args = {}) =>
    await qmp.command({ execute, arguments: args }, neverAborted)
  const before = await lastNumber(source)
  await expect.poll(() => lastNumber(source)).toBeGreaterThan(before)
  const nodes = await qmp.execute('query-named-block-nodes', { flat: true }, neverAborted)
  const objects = await qmp.execute('qom-list', { path: '/objects' }, neverAborted).catch(() => [])
  const capabilities = await qmp.execute('query-migrate-capabilities', {}, neverAborted)
  expect({
    status: (await qmp.execute('query-status', {}, neverAborted)).status,
    jobs: await qmp.execute('query-jobs', {}, neverAborted),
    nodes: nodes.map((node) => node['node-name']).filter((name) => !name.startsWith('name-disk')),
    objects: objects.map(({ name }) => name).filter((name) => name.startsWith('move')),
    capabilities: capabilities.flatMap(({ capability, state }) =>
      state && capability !== 'events' ? [capability] : [],
    ),
    parameters: await ask('query-migrate-parameters'),
    sets: (await qmp.execute('query-fdsets', {}, neverAborted)).length,
    files: readdirSync(folder).filter((name) => name.startsWith('move')),
    sockets: socketsOf(source.pid),
  }).toEqual({
    ...{ status: 'running', jobs: [], nodes: [], objects: [], capabilities: [], sets: 1, files: [] },
    parameters: expect.objectContaining({
      'tls-creds': '',
      'tls-hostname': '',
      'max-bandwidth': 128 * 2 ** 20,
    }),
    sockets: source.sockets,
  })
}

export interface BulkProxy {
  readonly endpoint: BulkEndpoint
  close(): void
}

/** Ends the first connection once its two directions have carried so many bytes. */
export async function cuttingProxy(to: BulkEndpoint | undefined, afterBytes: number): Promise<BulkProxy> {
  if (to === undefined || 'path' in to) throw new Error('no endpoint of TCP')
  const open = new Set<Socket>()
  const server = createServer((client) => {
    const target = connect(to)
    const end = () => {
      client.destroy()
      target.destroy()
    }
    let left = afterBytes
    const forward = (from: Socket, into: Socket) =>
      from.on('data', (data) => {
        into.write(data.subarray(0, left))
        left -= data.length
        if (left <= 0) end()
      })
    for (const socket of [client, target]) {
      open.add(socket)
      socket.on('error', () => {}).once('close', end)
    }
    if (left === 0) end()
    forward(client, target)
    forward(target, client)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    endpoint: { host: '127.0.0.1', port: (server.address() as AddressInfo).port },
    close: () => {
      server.close()
      for (const socket of open) socket.destroy()
    },
  }
}

/** A file system of that size, which is unmounted after the test. */
export function mountRoom(folder: string, mib: number): void {
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${mib}m`, 'tmpfs', folder])
  onTestFinished(() => void execFileSync('umount', ['--lazy', folder]))
}
