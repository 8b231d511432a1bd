/* Takes a lock and prints whether the program has more privilege than its caller. */
#include <pthread.h>
#include <stdio.h>
#include <sys/auxv.h>

int main(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
	printf("secure %lu\n", getauxval(AT_SECURE));
	return 0;
}
