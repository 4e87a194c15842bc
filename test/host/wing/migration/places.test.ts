import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  ChangeStateRequest_Change as Change,
  EnsureInstanceRequest,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import type { Caller } from '../../../../src/host/instance/instances.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { CountingMachines } from '../../../support/wing/counting-machine.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { image } from '../../../support/wing/real-wing.ts'
import { ADMIN, file, tenant } from '../../../support/wing/requests.ts'

const TIMEOUT_MS = 60_000

describe('where machines are saved', { timeout: TIMEOUT_MS }, () => {
  it('has nothing of others removed: a folder with files is refused, and the machine goes on', async () => {
    const host = new CountingMachines()
    await host.make()
    const folder = join(temporaryFolder(), 'data')
    mkdirSync(folder)
    writeFileSync(join(folder, 'kept'), 'kept')
    mkdirSync(`${folder}.old`)
    mkdirSync(`${folder}.new`)
    const taken = { code: 'ALREADY_EXISTS', message: expect.stringContaining(`${folder}: `) }
    await expect(host.suspend({ folder })).rejects.toMatchObject(taken)
    const other = `${folder}-one`
    await host.suspend({ folder: other })
    const state = readFileSync(join(other, 'state.binpb'))
    await host.resume({ folder: other })
    // What a daemon leaves that dies before it has removed all of it.
    writeFileSync(join(other, 'state.binpb'), state)
    await host.leave()
    await (await host.open()).get('web', ADMIN)
    expect(existsSync(join(other, 'state.binpb'))).toBe(false)
    writeFileSync(join(other, 'kept'), 'kept')
    await expect(host.suspend({ folder: other })).rejects.toMatchObject({ code: 'ALREADY_EXISTS' })
    await host.counted('web', 300)
    await host.told()
    expect([folder, other].map((each) => readFileSync(join(each, 'kept'), 'utf8'))).toEqual(['kept', 'kept'])
    expect(existsSync(`${folder}.old`) && existsSync(`${folder}.new`)).toBe(true)
    // What comes while the machine stands still, too.
    const late = `${folder}-late`
    host.atStep = async (_, step) => {
      if (step === 'manifest') cpSync(folder, late, { recursive: true })
    }
    await expect(host.suspend({ folder: late })).rejects.toMatchObject({ code: 'ALREADY_EXISTS' })
    host.atStep = async () => {}
    await host.counted('web', 300)
    await host.told()
    expect(readdirSync(join(folder, '..')).toSorted()).toEqual([
      ...['data', 'data-late', 'data-one', 'data.new', 'data.old'],
    ])
    await host.end()
    expect(leftovers(host.folder)).toEqual([])
  })

  it('is one place for each name, whatever the name, and of one machine at a time', async () => {
    const host = new CountingMachines()
    const names = ['x.new', 'x.old', 'x']
    for (const name of names) {
      await host.make(name, own(host, name))
      await host.suspend({ key: name, name })
    }
    const instances = await host.open()
    expect((await instances.listSaved(ADMIN)).map(({ name }) => name).toSorted()).toEqual(names.toSorted())
    await host.resume({ name: 'x.new' }, 'x.new')
    await instances.deleteSaved('x.old', ADMIN)
    await host.make('y', own(host, 'y'))
    // Both at once, as the same one.
    const both = await Promise.allSettled(['x.new', 'y'].map((key) => host.suspend({ key, name: 'same' })))
    expect(both.map(({ status }) => status)).toEqual(['fulfilled', 'rejected'])
    expect(both[1]).toMatchObject({ reason: { code: 'ALREADY_EXISTS' } })
    await host.counted('y', 300)
    await host.told('y')
    // One that is being resumed still has all that it is in its folder.
    const [reached, go] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    host.atStep = async (operation, step) => {
      if (operation !== 'import' || step !== 'memory') return
      reached.resolve()
      await go.promise
    }
    const resumed = host.resume({ name: 'same' }, 'z')
    await reached.promise
    const busy = { code: 'ALREADY_EXISTS', message: expect.stringContaining('being resumed, as instance z') }
    await expect(host.suspend({ key: 'y', name: 'same' })).rejects.toMatchObject(busy)
    await expect(instances.deleteSaved('same', ADMIN)).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
    go.resolve()
    await resumed
    await host.counted('z', 300)
    await host.told('z')
    await host.suspend({ key: 'y', name: 'same' })
    expect(readdirSync(join(host.folder, 'saved/+own')).toSorted()).toEqual(['same', 'x', 'x.new'])
    await host.end()
    expect(leftovers(host.folder)).toEqual([])
  })

  it('is of one tenant, which is not told where they are', async () => {
    const host = new CountingMachines()
    const instances = await host.open()
    const make = async (key: string, name = 'anne') => {
      const request = host.request(key, own(host, key))
      await instances.ensure({ ...request, properties: { key, tenant: name, labels: {} } }, ADMIN)
      await host.change(Change.RUN, key)
      await host.counted(key, 1)
    }
    const [anne, bob] = [tenant('anne'), tenant('bob')]
    await make('a')
    const saved = await host.suspend({ key: 'a' }, anne)
    const listed = await instances.listSaved(anne)
    expect([saved, ...listed].map(({ folder, name }) => [folder, name])).toEqual(Array(2).fill(['', 'one']))
    expect(Number(saved.sizeBytes)).toBeGreaterThan(64 * 2 ** 20)
    // It is there for no other.
    const resume = (key: string, caller: Caller) =>
      instances.ensure(
        EnsureInstanceRequest.fromPartial({ properties: { key }, saved: { name: 'one' } }),
        caller,
      )
    expect(await instances.listSaved(bob)).toEqual([])
    for (const other of [() => resume('x', bob), () => instances.deleteSaved('one', bob)])
      await expect(other()).rejects.toMatchObject({
        code: 'NOT_FOUND',
        message: expect.not.stringContaining(host.folder),
      })
    await make('b')
    await expect(host.suspend({ key: 'b' }, anne)).rejects.toMatchObject({
      message: 'one: a saved machine is there already',
    })
    expect(await resume('a', anne)).toMatchObject({ state: State.RUNNING })
    // What was resumed takes nothing.
    expect(await instances.listSaved(anne)).toMatchObject([{ resumedAs: 'a', sizeBytes: 0n }])
    await host.end()
    expect(leftovers(host.folder)).toEqual([])
  })
})

function own({ disks }: CountingMachines, name: string) {
  return { backends: { 'root-file': file(image(disks, `root-${name}`, 16)) } }
}
