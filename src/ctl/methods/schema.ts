import type { DescMethod } from '@bufbuild/protobuf'
import { didYouMean } from '../../base/suggest.mjs'
import { describedTypes } from '../../client/json/described-types.ts'
import { UsageError } from '../command.ts'
import { METHODS, type MethodName, methodNamed } from './method-names.ts'

/** Throws {@link UsageError} for an unknown method. */
export function describedMethod(name: string): DescMethod {
  const found = methodNamed(name)
  if (found === undefined) {
    const names = METHODS.map(({ method }) => method)
    throw new UsageError(`unknown call "${name}"${didYouMean(name, names, 'see agent-ctl methods')}`)
  }
  return describe(found)
}

function describe({ method, service }: MethodName): DescMethod {
  const described = describedTypes()
    .getService(service)
    ?.methods.find((each) => each.name === method)
  if (described === undefined) throw new Error(`${service}/${method}: not in the descriptors`)
  return described
}
