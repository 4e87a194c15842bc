import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { CountingMachines } from '../../../support/wing/counting-machine.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { image } from '../../../support/wing/real-wing.ts'
import { ADMIN, file } from '../../../support/wing/requests.ts'

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
})

function own({ disks }: CountingMachines, name: string) {
  return { backends: { 'root-file': file(image(disks, `root-${name}`, 16)) } }
}
