import { createFileRegistry, type DescMessage, type FileRegistry, fromBinary } from '@bufbuild/protobuf'
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt'
import { descriptorSet } from './descriptor-set.ts'

/** All services and messages of `proto/`. */
export function describedTypes(): FileRegistry {
  return createFileRegistry(fromBinary(FileDescriptorSetSchema, descriptorSet()))
}

/** A message by its full name, such as `microvm.instance.v1.Instance`. */
export function describedMessage(name: string): DescMessage {
  const described = describedTypes().getMessage(name)
  if (described === undefined) throw new Error(`${name}: not in the descriptors`)
  return described
}
