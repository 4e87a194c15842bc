import { describe, expect, it } from 'vitest'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import {
  createWithHooks,
  HOOKS_FOLDER,
  putHook,
  sandboxWithHooks,
} from '../../support/handlers/guest-hooks.ts'

describe('hooks of the guest', () => {
  it('are the executable files of the folder, sorted, with their name and kind as arguments', async () => {
    const os = new FakeOs()
    for (const path of ['prestart/b', 'prestart/a', 'poststop/c']) await putHook(os, path)
    const { made, lines } = await sandboxWithHooks({ os })
    const own = { Path: '/own', Args: ['own'], Env: ['A=b'], Timeout: 3n }
    const { hooks } = await createWithHooks(made, { Prestart: [own] })
    expect(hooks).toEqual({
      prestart: [
        { path: '/own', args: ['own'], env: ['A=b'], timeout: 3 },
        { path: `${HOOKS_FOLDER}/prestart/a`, args: ['a', 'prestart'], timeout: 10 },
        { path: `${HOOKS_FOLDER}/prestart/b`, args: ['b', 'prestart'], timeout: 10 },
      ],
      poststop: [{ path: `${HOOKS_FOLDER}/poststop/c`, args: ['c', 'poststop'], timeout: 10 }],
    })
    expect(lines).toEqual([])
  })

  it('exclude links, folders and files that are not executable, and log each', async () => {
    const os = new FakeOs()
    await putHook(os, 'prestart/text', 0o644)
    await putHook(os, 'real')
    await os.files.symlink(`${HOOKS_FOLDER}/real`, `${HOOKS_FOLDER}/prestart/link`)
    await putHook(os, 'prestart/folder/inner')
    const { made, lines } = await sandboxWithHooks({ os })
    expect(await createWithHooks(made)).not.toHaveProperty('hooks')
    expect(lines.map(({ path }) => path)).toEqual(
      ['folder', 'link', 'text'].map((name) => `${HOOKS_FOLDER}/prestart/${name}`),
    )
  })

  it.each([
    ['relative', 'usr/hooks', 'not an absolute path'],
    ['with a `..`', '/usr/../hooks', 'not an absolute path'],
    ['missing', '/usr/missing', 'not a directory'],
    ['a file', '/etc/resolv.conf', 'not a directory'],
  ])('are none, with a warning, when the path is %s', async (_what, path, text) => {
    const { made, lines } = await sandboxWithHooks({ path })
    expect(lines).toMatchObject([{ level: 'WARN', path, error: expect.stringContaining(text) }])
    expect(await createWithHooks(made)).not.toHaveProperty('hooks')
  })

  it('of one kind are used although the folder of another kind is a file', async () => {
    const os = new FakeOs()
    await putHook(os, 'prestart')
    await putHook(os, 'poststop/c')
    const { made, lines } = await sandboxWithHooks({ os })
    expect((await createWithHooks(made)).hooks.poststop).toHaveLength(1)
    expect(lines).toMatchObject([{ path: `${HOOKS_FOLDER}/prestart` }])
  })
})
