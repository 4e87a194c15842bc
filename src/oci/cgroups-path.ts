/**
 * Where below the cgroup root a container's cgroup goes (behaviour spec, section D.6, cgroupfs only): always
 * absolute, because a runtime puts a relative path below its own cgroup. `slice:prefix:name`, the form meant for
 * systemd, becomes the folders `/slice/prefix/name`; without any path it is the container's id.
 */
export function cgroupsPath(requested: string, containerId: string): string {
  if (requested === '') return `/${containerId}`
  const names = requested.replaceAll(':', '/').split('/')
  return `/${names.filter((name) => name !== '' && name !== '.' && name !== '..').join('/')}`
}
