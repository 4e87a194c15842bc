import { mkdirSync, readdirSync, readFileSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { InstanceRecord } from '../../../../src/gen/microvm/instance/v1/records.ts'
import { MAX_PAYLOAD_BYTES } from '../../../../src/host/instance/registry/check-changes.ts'
import { openRegistry, rebuildRegistry } from '../../../../src/host/instance/registry/open-registry.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'

it('takes over the specifications of all instances that can be read, and says which cannot', async () => {
  const folder = temporaryFolder()
  const records = { one: record('one', 'red'), two: record('two', 'blue') }
  addInstance(folder, 'n-1', records.one)
  addInstance(folder, 'n-2', records.two)
  addInstance(folder, 'n-3', record('one', 'green'))
  addInstance(folder, 'n-4', record('', 'red'))
  addInstance(
    folder,
    'n-5',
    InstanceRecord.encode(InstanceRecord.fromPartial({ properties: { key: 'x' } })).finish(),
  )
  addInstance(folder, 'n-6', Buffer.from('\xff\xff text', 'latin1'))
  addInstance(folder, 'n-7', new Uint8Array(MAX_PAYLOAD_BYTES + 1))
  mkdirSync(join(folder, 'instances/n-8/specification.binpb'), { recursive: true })
  mkdirSync(join(folder, 'instances/n-9'))
  symlinkSync('/dev/zero', join(folder, 'instances/n-9/specification.binpb'))
  mkdirSync(join(folder, 'instances/without'))
  writeFileSync(join(folder, 'instances/file'), '')
  writeFileSync(join(folder, 'registry.sqlite'), 'no database')

  const report = await rebuildRegistry(folder)

  expect(report.instances).toEqual(['one', 'two'])
  const path = (name: string) => join(folder, 'instances', name, 'specification.binpb')
  expect(report.unreadable).toEqual([
    { path: path('n-3'), reason: 'instance "one": has another specification' },
    { path: path('n-4'), reason: 'properties.key: missing' },
    { path: path('n-5'), reason: 'specification: missing' },
    { path: path('n-6'), reason: expect.any(String) },
    { path: path('n-7'), reason: '8388609 bytes, want at most 8388608' },
    { path: path('n-8'), reason: 'want a regular file' },
    { path: path('n-9'), reason: 'want a regular file' },
  ])
  expect(report.lost).toContain('idempotency key')
  expect(report.keptAside).toMatch(/registry\.sqlite\.damaged-\d{4}-\d\d-\d\dT[\d-]+\.\d+Z$/)
  expect(readFileSync(String(report.keptAside), 'utf8')).toBe('no database')
  const registry = await openRegistry(folder)
  const rows = await registry.load('instances')
  await registry.close()
  expect(rows).toEqual(new Map(Object.entries(records).map(([key, bytes]) => [key, Uint8Array.from(bytes)])))
  expect(readdirSync(folder).filter((name) => name.includes('new'))).toEqual([])
})

it('makes an empty registry where there is nothing, and says that nothing was kept', async () => {
  const folder = temporaryFolder()
  expect(await rebuildRegistry(folder)).toMatchObject({ instances: [], unreadable: [], keptAside: undefined })
  await (await openRegistry(folder)).close()
})

it('replaces a good registry too, and keeps it with its log', async () => {
  const folder = temporaryFolder()
  const registry = await openRegistry(folder)
  await registry.commit([{ table: 'calls', key: 'a', payload: Buffer.from('1') }])
  await expect(rebuildRegistry(folder)).rejects.toThrow(`used by the daemon with pid ${process.pid}`)
  await registry.close()
  writeFileSync(join(folder, 'registry.sqlite-wal'), 'a log')
  writeFileSync(join(folder, 'registry.sqlite.new'), 'of a rebuild that was killed')
  writeFileSync(join(folder, 'registry.sqlite.new-wal'), 'of a rebuild that was killed')
  const { keptAside } = await rebuildRegistry(folder)
  expect(readFileSync(`${keptAside}-wal`, 'utf8')).toBe('a log')
  const rebuilt = await openRegistry(folder)
  expect(await rebuilt.load('calls')).toEqual(new Map())
  await rebuilt.close()
})

it.each([
  ['is missing', () => {}],
  ['is empty', (path: string) => writeFileSync(path, '')],
])('is asked for when the registry %s although there are instances', async (_, spoil) => {
  const folder = temporaryFolder()
  addInstance(folder, 'n-1', record('one', 'red'))
  spoil(join(folder, 'registry.sqlite'))
  await expect(openRegistry(folder)).rejects.toMatchObject({
    code: 'FAILED_PRECONDITION',
    message: `${folder}/registry.sqlite: damaged (missing or empty, but instances has 1 specifications), want the daemon started with --rebuild`,
  })
  await rebuildRegistry(folder)
  await (await openRegistry(folder)).close()
})

it('is asked for when the registry is empty but its log is not', async () => {
  const folder = temporaryFolder()
  const registry = await openRegistry(folder)
  await registry.commit([{ table: 'calls', key: 'a', payload: Buffer.from('1') }])
  const log = readFileSync(join(folder, 'registry.sqlite-wal'))
  await registry.close()
  writeFileSync(join(folder, 'registry.sqlite-wal'), log)
  truncateSync(join(folder, 'registry.sqlite'), 0)
  await expect(openRegistry(folder)).rejects.toThrow('damaged (empty, but its log is not)')
})

function record(key: string, color: string): Uint8Array {
  const properties = { key, tenant: 'blue', labels: { color } }
  return InstanceRecord.encode(InstanceRecord.fromPartial({ properties, specification: {} })).finish()
}

function addInstance(folder: string, name: string, bytes: Uint8Array): void {
  mkdirSync(join(folder, 'instances', name), { recursive: true })
  writeFileSync(join(folder, 'instances', name, 'specification.binpb'), bytes)
}
