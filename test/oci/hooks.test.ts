import { describe, expect, it } from 'vitest'
import { Hooks } from '../../src/gen/oci.ts'
import { splitHooks } from '../../src/oci/hooks.ts'

const hook = (Path: string, Timeout = 0n) => ({ Path, Timeout, Args: [], Env: [] })

const NONE = { prestart: [], poststart: [], poststop: [] }

const pathsOf = (hooks: readonly { Path: string }[]) => hooks.map(({ Path }) => Path)

describe('splitHooks', () => {
  it('puts the guest’s hooks after the container’s own', () => {
    const own = Hooks.fromPartial({ Prestart: [hook('/a')], Poststart: [hook('/b')], Poststop: [hook('/c')] })
    const guest = { prestart: [hook('/ga')], poststart: [hook('/gb')], poststop: [hook('/gc')] }
    const { runtime, poststart } = splitHooks(own, guest)
    expect(pathsOf(runtime.Prestart)).toEqual(['/a', '/ga'])
    expect(pathsOf(poststart)).toEqual(['/b', '/gb'])
    expect(pathsOf(runtime.Poststop)).toEqual(['/c', '/gc'])
    expect(pathsOf(splitHooks(undefined, guest).runtime.Prestart)).toEqual(['/ga'])
  })

  it('leaves all hooks except startContainer and poststart to the runtime', () => {
    const own = Hooks.fromPartial({
      CreateRuntime: [hook('/r')],
      CreateContainer: [hook('/c')],
      StartContainer: [hook('/s')],
      Poststart: [hook('/p')],
    })
    const { runtime, startContainer } = splitHooks(own, NONE)
    expect([runtime.CreateRuntime, runtime.CreateContainer, startContainer].map(pathsOf)).toEqual([
      ['/r'],
      ['/c'],
      ['/s'],
    ])
    expect([...runtime.StartContainer, ...runtime.Poststart]).toEqual([])
  })

  it('sets a timeout of 10 s for a hook without one', () => {
    const own = Hooks.fromPartial({ Prestart: [hook('/a'), hook('/b', 3n)], Poststart: [hook('/c')] })
    const { runtime, poststart } = splitHooks(own, NONE)
    expect([...runtime.Prestart, ...poststart].map(({ Timeout }) => Timeout)).toEqual([10n, 3n, 10n])
  })
})
