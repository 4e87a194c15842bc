import { expect, it } from 'vitest'
import { keyUseOf } from '../../src/agent/service/rpc.ts'
import { declaredMethods } from '../../src/agent/service/services.ts'
import { REPEATS } from '../../src/client/lasting-session.ts'
import { serviceDependencies } from '../support/agent/service-dependencies.ts'

it('a session that lasts sends no key with a call that takes none', async () => {
  const refused = declaredMethods(await serviceDependencies()).filter(
    ({ rpc }) => keyUseOf(rpc) === 'refused',
  )
  const names = refused.map(({ name }) => name.slice(name.indexOf('/') + 1))
  expect(names).toContain('ReadStdout')
  expect(names.filter((name) => REPEATS[name] === undefined)).toEqual([])
})
